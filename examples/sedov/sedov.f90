!> sedov NAMELIST: a blast from a point in a uniform gas, in two dimensions, in a periodic box.
!>
!> Every rank reads the namelist from its own node and writes its part of each output to its own node, as RAMSES does.
!> The last lines give the change of mass and energy over the run. Exit code 0, or 1 with a message.
program sedov
  use mpi_f08
  use domain, only: block, divide, exchange, largest, total
  use hydro, only: advance, conserved, dp, ghosts, nvar, signal_speed
  use settings
  use snapshot, only: write_snapshot
  implicit none

  type(block) :: b
  real(dp), allocatable :: u(:, :, :)
  real(dp) :: dx, time, began, initial(2), final(2)
  integer :: step
  logical :: ok

  call MPI_Init()
  call read_namelist()
  call divide(ncell, b, ok)
  if (.not. ok) call stop_all('ncell is too small for this number of ranks: each needs 2 cells in each direction')
  dx = boxlen / ncell
  allocate (u(nvar, 1 - ghosts:b%nx + ghosts, 1 - ghosts:b%ny + ghosts))
  call initial_state()
  initial = total(u, b, dx)
  if (b%rank == 0) print '(a, i0, a, i0, a, i0, a, f0.3, a, i0, a)', 'sedov: ', ncell, ' x ', ncell, ' cells on ', b%ranks, &
    ' ranks, gamma ', gamma, ', ', outputs, ' outputs'

  began = MPI_Wtime()
  call evolve()
  final = total(u, b, dx)
  if (b%rank == 0) then
    print '(a, i0, a, f8.2, a)', 'run completed: ', step, ' steps in ', MPI_Wtime() - began, ' s'
    print '(a, es22.15, a, es10.2)', 'mass   ', final(1), '  relative change ', final(1) / initial(1) - 1
    print '(a, es22.15, a, es10.2)', 'energy ', final(2), '  relative change ', final(2) / initial(2) - 1
  end if
  ok = all(abs(final / initial - 1) <= 1e-6_dp)
  if (.not. ok) call stop_all('mass or energy changed by more than 1e-6')
  call MPI_Finalize()

contains

  subroutine read_namelist()
    character(len=4096) :: path
    character(len=:), allocatable :: message

    call get_command_argument(1, path)
    if (command_argument_count() /= 1) call stop_all('usage: sedov NAMELIST')
    call read_settings(trim(path), message)
    if (message /= '') call stop_all(message)
  end subroutine read_namelist

  !> Uniform gas, and the energy as pressure in the cells whose centres lie within `blast_cells` of the middle.
  subroutine initial_state()
    real(dp) :: blast_pressure
    integer :: i, j, cells

    cells = 0
    do j = 1, ncell
      do i = 1, ncell
        if (in_blast(i, j)) cells = cells + 1
      end do
    end do
    if (cells == 0) call stop_all('blast_cells is so small that no cell holds the blast: give at least 0.71')
    blast_pressure = pressure + (gamma - 1) * energy / (cells * dx**2)
    do j = 1, b%ny
      do i = 1, b%nx
        u(:, i, j) = conserved([density, 0.0_dp, 0.0_dp, merge(blast_pressure, pressure, in_blast(b%x0 + i, b%y0 + j))], gamma)
      end do
    end do
  end subroutine initial_state

  pure logical function in_blast(i, j)
    integer, intent(in) :: i, j
    real(dp) :: x, y

    x = i - 0.5_dp * (ncell + 1)
    y = j - 0.5_dp * (ncell + 1)
    in_blast = x**2 + y**2 <= blast_cells**2
  end function in_blast

  subroutine evolve()
    character(len=300) :: message
    real(dp) :: dt
    integer :: next
    logical :: last

    time = 0
    step = 0
    do next = 1, outputs
      do while (time < tout(next))
        dt = courant_factor * dx / largest(signal_speed(u, b%nx, b%ny, gamma), b)
        if (.not. dt > 0) call stop_all('the time step is no longer a positive number')
        last = time + dt >= tout(next)
        if (last) dt = tout(next) - time
        call exchange(u, b)
        call advance(u, b%nx, b%ny, dt, dx, gamma)
        time = merge(tout(next), time + dt, last)
        step = step + 1
        if (b%rank == 0 .and. mod(step, log_every) == 0) print '(a, i6, a, es12.5, a, es12.5)', 'step', step, '  t ', time, &
          '  dt ', dt
        if (step >= max_steps) call stop_all('max_steps reached before the last time in tout')
      end do
      call write_snapshot(next, u, b, ncell, dx, gamma, time, step, message)
      if (message /= '') call stop_all(message)
      if (b%rank == 0) print '(a, i5.5, a, es12.5)', 'output_', next, '  t ', time
    end do
  end subroutine evolve

  !> Ends all ranks with exit code 1.
  subroutine stop_all(message)
    use, intrinsic :: iso_fortran_env, only: error_unit
    character(len=*), intent(in) :: message
    character(len=MPI_MAX_PROCESSOR_NAME) :: host
    integer :: length, rank

    call MPI_Comm_rank(MPI_COMM_WORLD, rank)
    call MPI_Get_processor_name(host, length)
    write (error_unit, '(a, i0, 4a)') 'sedov: rank ', rank, ' on ', host(:length), ': ', trim(message)
    call MPI_Abort(MPI_COMM_WORLD, 1)
  end subroutine stop_all
end program sedov
