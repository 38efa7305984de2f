!> What is left on disk? For output number N a directory `output_N` (five digits) in the working directory, with one file
!> a rank, `hydro_N.outR`, and from rank 0 `info_N.txt`, names as in RAMSES. Each rank makes the directory on its own node.
!>
!> `hydro_N.outR` holds, in the machine's byte order and without record marks, six 32-bit integers (cells of the whole grid in
!> one direction, first cell in x and in y counted from 0, cells in x and in y, variables), then 64-bit reals: density, velocity
!> in x and y, pressure of each cell, variables varying fastest, then x, then y.
module snapshot
  use, intrinsic :: iso_c_binding, only: c_char, c_int, c_null_char
  use, intrinsic :: iso_fortran_env, only: int32
  use domain, only: block
  use hydro, only: dp, ghosts, nvar, primitive
  implicit none
  private

  public :: write_snapshot

  interface
    function c_mkdir(path, mode) result(status) bind(c, name='mkdir')
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int), value :: mode
      integer(c_int) :: status
    end function c_mkdir
  end interface

contains

  !> `message` is empty, or says which file could not be written and why.
  subroutine write_snapshot(number, u, b, n, dx, gamma, time, step, message)
    integer, intent(in) :: number, n, step
    type(block), intent(in) :: b
    real(dp), intent(in) :: u(nvar, 1 - ghosts:b%nx + ghosts, 1 - ghosts:b%ny + ghosts), dx, gamma, time
    character(len=*), intent(out) :: message
    character(len=12) :: directory
    character(len=:), allocatable :: path
    character(len=5) :: part
    character(len=200) :: reason
    real(dp), allocatable :: w(:, :, :)
    integer :: unit, status, i, j

    write (directory, '(a, i5.5)') 'output_', number
    write (part, '(i5.5)') b%rank + 1
    ! Fails where another rank of this node was faster; a failure that matters shows in the open below.
    status = c_mkdir(directory//c_null_char, int(o'755', c_int))

    allocate (w(nvar, b%nx, b%ny))
    do j = 1, b%ny
      do i = 1, b%nx
        w(:, i, j) = primitive(u(:, i, j), gamma)
      end do
    end do
    path = directory//'/hydro_'//directory(8:)//'.out'//part
    open (newunit=unit, file=path, access='stream', form='unformatted', status='replace', action='write', &
          iostat=status, iomsg=reason)
    if (status == 0) then
      write (unit, iostat=status, iomsg=reason) int([n, b%x0, b%y0, b%nx, b%ny, nvar], int32), w
      if (status == 0) close (unit, iostat=status, iomsg=reason)
    end if
    if (status == 0 .and. b%rank == 0) then
      path = directory//'/info_'//directory(8:)//'.txt'
      call write_info(path, b%ranks, n, dx, gamma, time, step, status, reason)
    end if
    message = ''
    if (status /= 0) message = path//': '//trim(reason)
  end subroutine write_snapshot

  subroutine write_info(path, ranks, n, dx, gamma, time, step, status, reason)
    character(len=*), intent(in) :: path
    integer, intent(in) :: ranks, n, step
    real(dp), intent(in) :: dx, gamma, time
    integer, intent(out) :: status
    character(len=*), intent(inout) :: reason
    integer :: unit

    open (newunit=unit, file=path, status='replace', action='write', iostat=status, iomsg=reason)
    if (status /= 0) return
    write (unit, '(a, i0)', iostat=status, iomsg=reason) 'ncpu        = ', ranks, 'ncell       = ', n, 'nstep       = ', step
    if (status /= 0) return
    write (unit, '(a, es23.15)', iostat=status, iomsg=reason) 'boxlen      = ', n * dx, 'time        = ', time, &
      'gamma       = ', gamma
    if (status == 0) close (unit, iostat=status, iomsg=reason)
  end subroutine write_info
end module snapshot
