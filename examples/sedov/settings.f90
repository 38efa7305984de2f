!> What is to be computed? The namelist file, its groups in any order, each of them optional.
module settings
  use hydro, only: dp
  implicit none
  private

  integer, parameter :: max_outputs = 100
  real(dp), parameter :: unset = -1

  !> &run_params: cells in one direction, a line every `log_every` steps, a limit of steps.
  integer, public, protected :: ncell = 128, log_every = 50, max_steps = 1000000
  !> &hydro_params: ratio of specific heats; step over the longest stable one.
  real(dp), public, protected :: gamma = 1.4_dp, courant_factor = 0.8_dp
  !> &init_params: length of the box, energy of the blast and the radius (in cells) it is spread over, density and pressure
  !> of the gas around.
  real(dp), public, protected :: boxlen = 1, energy = 1, blast_cells = 3, density = 1, pressure = 1e-5_dp
  !> &output_params: times, rising; the run ends with the last.
  real(dp), public, protected :: tout(max_outputs) = unset
  !> How many of them are given.
  integer, public, protected :: outputs = 0

  namelist /run_params/ ncell, log_every, max_steps
  namelist /hydro_params/ gamma, courant_factor
  namelist /init_params/ boxlen, energy, blast_cells, density, pressure
  namelist /output_params/ tout

  public :: read_settings

contains

  !> `message` is empty, or says what is wrong.
  subroutine read_settings(path, message)
    character(len=*), intent(in) :: path
    character(len=:), allocatable, intent(out) :: message
    character(len=300) :: reason
    integer :: unit, status

    message = ''
    open (newunit=unit, file=path, status='old', action='read', iostat=status, iomsg=reason)
    if (status /= 0) then
      message = trim(reason)
      return
    end if
    read (unit, nml=run_params, iostat=status, iomsg=reason)
    call after_group('run_params')
    read (unit, nml=hydro_params, iostat=status, iomsg=reason)
    call after_group('hydro_params')
    read (unit, nml=init_params, iostat=status, iomsg=reason)
    call after_group('init_params')
    read (unit, nml=output_params, iostat=status, iomsg=reason)
    call after_group('output_params')
    close (unit)
    if (message == '') call check_values(message)
    if (message /= '') message = path//': '//message

  contains

    !> A group that is absent keeps its defaults.
    subroutine after_group(group)
      character(len=*), intent(in) :: group

      if (status /= 0 .and. .not. is_iostat_end(status) .and. message == '') message = '&'//group//': '//trim(reason)
      rewind (unit)
    end subroutine after_group
  end subroutine read_settings

  subroutine check_values(message)
    character(len=:), allocatable, intent(inout) :: message

    outputs = count(tout > unset)
    if (ncell < 4 .or. ncell > 16384) then
      message = 'ncell must be between 4 and 16384'
    else if (log_every < 1 .or. max_steps < 1) then
      message = 'log_every and max_steps must be at least 1'
    else if (gamma <= 1) then
      message = 'gamma must be greater than 1'
    else if (min(boxlen, energy, blast_cells, density, pressure, courant_factor) <= 0) then
      message = 'boxlen, energy, blast_cells, density, pressure and courant_factor must be positive'
    else if (outputs == 0 .or. any(tout(:outputs) < 0)) then
      message = 'tout must name at least one time, none negative'
    else if (any(tout(2:outputs) <= tout(1:outputs - 1))) then
      message = 'the times in tout must rise'
    end if
  end subroutine check_values
end module settings
