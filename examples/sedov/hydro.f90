!> How does the gas change in one step? Euler's equations in two dimensions on a square grid, by a finite-volume scheme of
!> second order: limited linear reconstruction, a predictor of half a step (MUSCL-Hancock, unsplit), the HLLC Riemann solver
!> (Toro, Riemann Solvers and Numerical Methods for Fluid Dynamics, chapters 10 and 14).
!>
!> A cell's new value depends only on its neighbours within two cells, with the same operations in the same order on every
!> rank: so the result does not depend on how the grid is divided.
module hydro
  use, intrinsic :: iso_fortran_env, only: real64
  implicit none
  private

  integer, parameter, public :: dp = real64
  !> Width of the border that a block holds of its neighbours.
  integer, parameter, public :: ghosts = 2
  !> Conserved variables of a cell: density, momentum in x and y, total energy, each per area.
  integer, parameter, public :: nvar = 4

  !> The least density and pressure a flux is computed with. They do not enter the conserved variables, so mass and energy
  !> stay conserved.
  real(dp), parameter :: smallest_density = 1e-10_dp, smallest_pressure = 1e-12_dp

  public :: primitive, conserved, signal_speed, advance

contains

  !> Density, velocity in x and y, pressure.
  pure function primitive(u, gamma) result(w)
    real(dp), intent(in) :: u(nvar), gamma
    real(dp) :: w(nvar)

    w(1) = max(u(1), smallest_density)
    w(2) = u(2) / w(1)
    w(3) = u(3) / w(1)
    w(4) = max((gamma - 1) * (u(4) - 0.5_dp * w(1) * (w(2)**2 + w(3)**2)), smallest_pressure)
  end function primitive

  pure function conserved(w, gamma) result(u)
    real(dp), intent(in) :: w(nvar), gamma
    real(dp) :: u(nvar)

    u(1) = w(1)
    u(2) = w(1) * w(2)
    u(3) = w(1) * w(3)
    u(4) = w(4) / (gamma - 1) + 0.5_dp * w(1) * (w(2)**2 + w(3)**2)
  end function conserved

  !> The largest sum over both directions of |velocity| + sound speed in the block. A step is stable up to
  !> cell width / this.
  pure function signal_speed(u, nx, ny, gamma) result(speed)
    integer, intent(in) :: nx, ny
    real(dp), intent(in) :: u(nvar, 1 - ghosts:nx + ghosts, 1 - ghosts:ny + ghosts), gamma
    real(dp) :: speed, w(nvar)
    integer :: i, j

    speed = 0
    do j = 1, ny
      do i = 1, nx
        w = primitive(u(:, i, j), gamma)
        speed = max(speed, abs(w(2)) + abs(w(3)) + 2 * sqrt(gamma * w(4) / w(1)))
      end do
    end do
  end function signal_speed

  !> One step of `dt`. The border must hold the neighbours' values; afterwards it is out of date.
  subroutine advance(u, nx, ny, dt, dx, gamma)
    integer, intent(in) :: nx, ny
    real(dp), intent(inout) :: u(nvar, 1 - ghosts:nx + ghosts, 1 - ghosts:ny + ghosts)
    real(dp), intent(in) :: dt, dx, gamma
    !> The state at the four faces of each cell, half a step later: low and high side in x and in y.
    real(dp), allocatable :: low_x(:, :, :), high_x(:, :, :), low_y(:, :, :), high_y(:, :, :)
    real(dp), allocatable :: w(:, :, :), flux_x(:, :, :), flux_y(:, :, :)
    integer :: i, j

    allocate (w, mold=u)
    allocate (low_x(nvar, 0:nx + 1, 0:ny + 1))
    allocate (high_x, low_y, high_y, mold=low_x)
    allocate (flux_x(nvar, 0:nx, 1:ny), flux_y(nvar, 1:nx, 0:ny))

    do j = 1 - ghosts, ny + ghosts
      do i = 1 - ghosts, nx + ghosts
        w(:, i, j) = primitive(u(:, i, j), gamma)
      end do
    end do
    do j = 0, ny + 1
      do i = 0, nx + 1
        call predict(w(:, i, j), slope(w(:, i - 1, j), w(:, i, j), w(:, i + 1, j)), &
                     slope(w(:, i, j - 1), w(:, i, j), w(:, i, j + 1)), dt / dx, gamma, &
                     low_x(:, i, j), high_x(:, i, j), low_y(:, i, j), high_y(:, i, j))
      end do
    end do
    do j = 1, ny
      do i = 0, nx
        flux_x(:, i, j) = hllc(high_x(:, i, j), low_x(:, i + 1, j), gamma)
      end do
    end do
    do j = 0, ny
      do i = 1, nx
        flux_y(:, i, j) = turned(hllc(turned(high_y(:, i, j)), turned(low_y(:, i, j + 1)), gamma))
      end do
    end do
    do j = 1, ny
      do i = 1, nx
        u(:, i, j) = u(:, i, j) - dt / dx * ((flux_x(:, i, j) - flux_x(:, i - 1, j)) &
                                             + (flux_y(:, i, j) - flux_y(:, i, j - 1)))
      end do
    end do
  end subroutine advance

  !> The difference across a cell: the centred one, limited to what neither neighbour exceeds (monotonised central, with 1.5
  !> instead of 2, which keeps strong shocks quieter).
  pure function slope(before, here, after) result(difference)
    real(dp), intent(in) :: before(nvar), here(nvar), after(nvar)
    real(dp) :: difference(nvar), left, right
    integer :: k

    do k = 1, nvar
      left = here(k) - before(k)
      right = after(k) - here(k)
      if (left * right <= 0) then
        difference(k) = 0
      else
        difference(k) = sign(min(0.5_dp * abs(left + right), 1.5_dp * abs(left), 1.5_dp * abs(right)), left)
      end if
    end do
  end function slope

  !> The states at a cell's faces half a step later. `ratio` is dt / dx.
  pure subroutine predict(w, sx, sy, ratio, gamma, low_x, high_x, low_y, high_y)
    real(dp), intent(in) :: w(nvar), sx(nvar), sy(nvar), ratio, gamma
    real(dp), intent(out) :: low_x(nvar), high_x(nvar), low_y(nvar), high_y(nvar)
    real(dp) :: middle(nvar)

    ! The order of the two directions' terms is the same in each sum, so that x and y are treated alike.
    middle(1) = w(1) - 0.5_dp * ratio * ((w(2) * sx(1) + w(1) * sx(2)) + (w(3) * sy(1) + w(1) * sy(3)))
    middle(2) = w(2) - 0.5_dp * ratio * ((w(2) * sx(2) + sx(4) / w(1)) + w(3) * sy(2))
    middle(3) = w(3) - 0.5_dp * ratio * (w(2) * sx(3) + (w(3) * sy(3) + sy(4) / w(1)))
    middle(4) = w(4) - 0.5_dp * ratio * ((w(2) * sx(4) + gamma * w(4) * sx(2)) + (w(3) * sy(4) + gamma * w(4) * sy(3)))
    low_x = positive(middle - 0.5_dp * sx, w)
    high_x = positive(middle + 0.5_dp * sx, w)
    low_y = positive(middle - 0.5_dp * sy, w)
    high_y = positive(middle + 0.5_dp * sy, w)
  end subroutine predict

  !> The reconstruction, or the cell's mean where it would have no positive density or pressure.
  pure function positive(state, mean) result(w)
    real(dp), intent(in) :: state(nvar), mean(nvar)
    real(dp) :: w(nvar)

    if (state(1) > smallest_density .and. state(4) > smallest_pressure) then
      w = state
    else
      w = mean
    end if
  end function positive

  !> Exchanges the roles of x and y.
  pure function turned(w)
    real(dp), intent(in) :: w(nvar)
    real(dp) :: turned(nvar)

    turned = [w(1), w(3), w(2), w(4)]
  end function turned

  !> The flux in x between two states, with the contact wave restored.
  pure function hllc(l, r, gamma) result(flux)
    real(dp), intent(in) :: l(nvar), r(nvar), gamma
    real(dp) :: flux(nvar), c, s_l, s_r, s_contact, mass_l, mass_r, p

    c = max(sqrt(gamma * l(4) / l(1)), sqrt(gamma * r(4) / r(1)))
    s_l = min(l(2), r(2)) - c
    s_r = max(l(2), r(2)) + c
    mass_l = l(1) * (l(2) - s_l)
    mass_r = r(1) * (s_r - r(2))
    s_contact = (mass_r * r(2) + mass_l * l(2) + (l(4) - r(4))) / (mass_r + mass_l)
    if (s_l >= 0) then
      flux = flux_of(l, conserved(l, gamma))
    else if (s_r <= 0) then
      flux = flux_of(r, conserved(r, gamma))
    else
      p = (mass_r * l(4) + mass_l * r(4) + mass_l * mass_r * (l(2) - r(2))) / (mass_r + mass_l)
      if (s_contact >= 0) then
        flux = flux_between(l, conserved(l, gamma), s_l)
      else
        flux = flux_between(r, conserved(r, gamma), s_r)
      end if
    end if

  contains

    pure function flux_of(w, u)
      real(dp), intent(in) :: w(nvar), u(nvar)
      real(dp) :: flux_of(nvar)

      flux_of = [u(2), u(2) * w(2) + w(4), u(3) * w(2), (u(4) + w(4)) * w(2)]
    end function flux_of

    !> Between the outer wave of speed s and the contact.
    pure function flux_between(w, u, s)
      real(dp), intent(in) :: w(nvar), u(nvar), s
      real(dp) :: flux_between(nvar), density, energy

      density = w(1) * (s - w(2)) / (s - s_contact)
      energy = ((s - w(2)) * u(4) - w(4) * w(2) + p * s_contact) / (s - s_contact)
      flux_between = [density * s_contact, density * s_contact**2 + p, density * s_contact * w(3), &
                      (energy + p) * s_contact]
    end function flux_between
  end function hllc
end module hydro
