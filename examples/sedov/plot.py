#!/usr/bin/python3
"""plot.py OUTPUT_DIRECTORY PNG: the density of a sedov output, and its profile beside the self-similar radius."""

import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from outputs import Output, self_similar_radius


def main():
    if len(sys.argv) != 3:
        raise SystemExit("usage: plot.py OUTPUT_DIRECTORY PNG")
    output = Output(sys.argv[1])
    n, length, time = output.n, output.info["boxlen"], output.info["time"]
    density = np.array(output.fields[0]).reshape(n, n)
    expected, measured = self_similar_radius(time), output.shock_radius()
    print(f"shock radius {measured:.4f}, self-similar solution {expected:.4f}, ratio {measured / expected:.4f}")

    figure, (image, curve) = plt.subplots(1, 2, figsize=(12, 5.2), constrained_layout=True)
    half = length / 2
    shown = image.imshow(density, origin="lower", extent=(-half, half, -half, half), cmap="viridis")
    image.add_patch(plt.Circle((0, 0), expected, fill=False, color="white", linestyle="--", linewidth=1))
    image.set(xlabel="x", ylabel="y", title=f"density, t = {time:g}, {n} x {n} cells")
    figure.colorbar(shown, ax=image)

    centres = (np.arange(n) + 0.5) * length / n - half
    radius = np.hypot(*np.meshgrid(centres, centres))
    curve.plot(radius.ravel(), density.ravel(), ",", alpha=0.5, label="each cell")
    curve.plot(*output.profile(), label="mean")
    curve.axvline(expected, color="black", linestyle="--", label="self-similar radius")
    curve.set(xlim=(0, half), xlabel="distance from the centre", ylabel="density", title="profile")
    curve.legend()
    figure.savefig(sys.argv[2], dpi=100)


if __name__ == "__main__":
    main()
