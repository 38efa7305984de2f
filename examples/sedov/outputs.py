"""Reads the outputs of sedov, and compares one with the self-similar solution. Needs Python's standard library only."""

import glob
import math
import os
import struct
from array import array

VARIABLES = ("density", "velocity x", "velocity y", "pressure")


class Output:
    """One output directory: `info` (from info_N.txt), `n` cells in each direction, and `fields`, a list of four arrays of
    n * n numbers, x varying fastest."""

    def __init__(self, directory):
        number = os.path.basename(os.path.normpath(directory)).rpartition("_")[2]
        self.info = {}
        with open(os.path.join(directory, f"info_{number}.txt"), encoding="ascii") as file:
            for line in file:
                key, _, value = line.partition("=")
                self.info[key.strip()] = float(value)
        self.n = int(self.info["ncell"])
        self.fields = [array("d", [math.nan]) * (self.n * self.n) for _ in VARIABLES]
        paths = sorted(glob.glob(os.path.join(directory, f"hydro_{number}.out*")))
        if len(paths) != int(self.info["ncpu"]):
            raise SystemExit(f"{directory}: {len(paths)} hydro files, but {int(self.info['ncpu'])} ranks wrote some")
        for path in paths:
            self._read_part(path)
        if any(math.isnan(value) for field in self.fields for value in field):
            raise SystemExit(f"{directory}: some cells are missing or not a number")

    def _read_part(self, path):
        with open(path, "rb") as file:
            n, x0, y0, nx, ny, nvar = struct.unpack("=6i", file.read(24))
            values = array("d")
            values.fromfile(file, nvar * nx * ny)
        if n != self.n or nvar != len(VARIABLES):
            raise SystemExit(f"{path}: written for another grid")
        for j in range(ny):
            row = values[nvar * nx * j : nvar * nx * (j + 1)]
            start = (y0 + j) * n + x0
            for k, field in enumerate(self.fields):
                field[start : start + nx] = row[k::nvar]

    def profile(self):
        """Radii (of bins one cell wide) and the mean density at each, up to half the box."""
        n, density = self.n, self.fields[0]
        sums, counts = [0.0] * (n // 2), [0] * (n // 2)
        for j in range(n):
            for i in range(n):
                k = int(math.hypot(i - (n - 1) / 2, j - (n - 1) / 2))
                if k < n // 2:
                    sums[k] += density[j * n + i]
                    counts[k] += 1
        dx = self.info["boxlen"] / n
        return [(k + 0.5) * dx for k in range(n // 2)], [s / c for s, c in zip(sums, counts)]

    def shock_radius(self):
        """Where the mean density falls, going outwards, through the middle between its peak and the gas around."""
        radii, means = self.profile()
        half = (max(means) + means[-1]) / 2
        for k in range(len(means) - 2, -1, -1):
            if means[k] > half:
                fraction = (means[k] - half) / (means[k] - means[k + 1])
                return radii[k] + fraction * (radii[k + 1] - radii[k])
        raise SystemExit("no shock found: the density is the same everywhere")


def self_similar_radius(time, energy=1.0, density=1.0):
    """R = (E t^2 / (alpha rho))^(1/4) with alpha of the plane blast for gamma = 1.4 (Kamm and Timmes 2007, LA-UR-07-2849:
    E = 0.311357 gives R = 0.75 at t = 1)."""
    alpha = 0.311357 / 0.75**4
    return (energy * time**2 / (alpha * density)) ** 0.25


def relative_difference(a, b):
    """The largest difference of any variable in any cell, over the largest value of that variable."""
    if a.n != b.n:
        raise SystemExit("grids of different size")
    worst = 0.0
    for left, right in zip(a.fields, b.fields):
        scale = max(map(abs, left)) or 1.0
        worst = max(worst, max(abs(x - y) for x, y in zip(left, right)) / scale)
    return worst
