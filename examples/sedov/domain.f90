!> Which part of the grid is whose, and how do borders travel? The periodic box of n by n cells is divided into a grid of
!> blocks, one a rank.
module domain
  use mpi_f08
  use hydro, only: dp, ghosts, nvar
  implicit none
  private

  type, public :: block
    type(MPI_Comm) :: comm
    integer :: rank, ranks
    !> Cells of this block, and the global index of its first cell less one.
    integer :: nx, ny, x0, y0
    integer, private :: west, east, south, north
  end type block

  public :: divide, exchange, largest, total

contains

  !> A collective call. Every rank must get at least `ghosts` cells in each direction; `ok` is false where that fails.
  subroutine divide(n, b, ok)
    integer, intent(in) :: n
    type(block), intent(out) :: b
    logical, intent(out) :: ok
    integer :: dims(2), coords(2)

    call MPI_Comm_size(MPI_COMM_WORLD, b%ranks)
    dims = 0
    call MPI_Dims_create(b%ranks, 2, dims)
    call MPI_Cart_create(MPI_COMM_WORLD, 2, dims, [.true., .true.], .false., b%comm)
    call MPI_Comm_rank(b%comm, b%rank)
    call MPI_Cart_coords(b%comm, b%rank, 2, coords)
    call MPI_Cart_shift(b%comm, 0, 1, b%west, b%east)
    call MPI_Cart_shift(b%comm, 1, 1, b%south, b%north)
    call share(n, dims(1), coords(1), b%x0, b%nx)
    call share(n, dims(2), coords(2), b%y0, b%ny)
    ok = n / maxval(dims) >= ghosts
  end subroutine divide

  !> The `which`-th of `parts` nearly equal parts of n.
  pure subroutine share(n, parts, which, first, count)
    integer, intent(in) :: n, parts, which
    integer, intent(out) :: first, count

    count = n / parts
    first = which * count + min(which, mod(n, parts))
    if (which < mod(n, parts)) count = count + 1
  end subroutine share

  !> Fills the border from the neighbours: first in x, then in y with the columns just received, so that corners arrive too.
  subroutine exchange(u, b)
    type(block), intent(in) :: b
    real(dp), intent(inout) :: u(nvar, 1 - ghosts:b%nx + ghosts, 1 - ghosts:b%ny + ghosts)
    real(dp), allocatable :: sent(:, :, :), received(:, :, :)
    integer, parameter :: g = ghosts
    integer :: nx, ny

    nx = b%nx
    ny = b%ny
    allocate (received(nvar, g, 1 - g:ny + g))
    sent = u(:, nx - g + 1:nx, :)
    call swap(sent, b%east, received, b%west)
    u(:, 1 - g:0, :) = received
    sent = u(:, 1:g, :)
    call swap(sent, b%west, received, b%east)
    u(:, nx + 1:nx + g, :) = received

    deallocate (sent, received)
    allocate (received(nvar, 1 - g:nx + g, g))
    sent = u(:, :, ny - g + 1:ny)
    call swap(sent, b%north, received, b%south)
    u(:, :, 1 - g:0) = received
    sent = u(:, :, 1:g)
    call swap(sent, b%south, received, b%north)
    u(:, :, ny + 1:ny + g) = received

  contains

    subroutine swap(out, to, in, from)
      real(dp), intent(in) :: out(:, :, :)
      real(dp), intent(inout) :: in(:, :, :)
      integer, intent(in) :: to, from
      integer, parameter :: tag = 1

      call MPI_Sendrecv(out, size(out), MPI_DOUBLE_PRECISION, to, tag, in, size(in), MPI_DOUBLE_PRECISION, from, tag, &
                        b%comm, MPI_STATUS_IGNORE)
    end subroutine swap
  end subroutine exchange

  !> The largest of all ranks' values; exact, so the same on any number of ranks.
  function largest(value, b)
    real(dp), intent(in) :: value
    type(block), intent(in) :: b
    real(dp) :: largest

    call MPI_Allreduce(value, largest, 1, MPI_DOUBLE_PRECISION, MPI_MAX, b%comm)
  end function largest

  !> The sum over the grid of the density of mass and of energy, times the area of a cell.
  function total(u, b, dx)
    type(block), intent(in) :: b
    real(dp), intent(in) :: u(nvar, 1 - ghosts:b%nx + ghosts, 1 - ghosts:b%ny + ghosts), dx
    real(dp) :: total(2), mine(2)

    mine = [sum(u(1, 1:b%nx, 1:b%ny)), sum(u(4, 1:b%nx, 1:b%ny))] * dx**2
    call MPI_Allreduce(mine, total, 2, MPI_DOUBLE_PRECISION, MPI_SUM, b%comm)
  end function total
end module domain
