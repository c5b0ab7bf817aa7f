"""
Segment a motion-capture recording, and name each state by the frame that is most typical of it.

The recording (39 seconds of exercises, 12 joint angles at 10 frames a second) is trial 20 of subject 14 of the CMU
motion capture database, mocap.cs.cmu.edu, as prepared and labelled for the BP-HMM papers in
github.com/michaelchughes/mocap6dataset, which carries the 2-clause BSD licence: see motion_capture.LICENSE.
"""

import itertools
from pathlib import Path

import numpy as np

import dask_dca as dca

HERE = Path(__file__).parent


def windows(frames, reach):
    """Return mean and deviation of each frame's neighbourhood, since single poses do not distinguish exercises."""
    t = np.arange(len(frames))
    low, high = np.maximum(t - reach, 0), np.minimum(t + reach + 1, len(frames))
    sums = [np.concatenate([np.zeros((1, frames.shape[1])), np.cumsum(frames**power, axis=0)]) for power in (1, 2)]
    mean, square = ((total[high] - total[low]) / (high - low)[:, None] for total in sums)
    return np.hstack([mean, np.sqrt(np.maximum(square - mean**2, 0.0))])


def main():
    with np.load(HERE / "motion_capture.npz") as file:
        frames, labels, actions = file["frames"].astype(float), file["labels"], file["actions"]
    X = windows(frames, reach=6)

    model = dca.GaussianHMM(6).fit(X)
    states = model.predict(X)

    # each state has a real frame that is most typical of it; a person looks at that frame and says what it shows
    names = [str(actions[labels[frame] - 1]) for frame in model.anchor_indices_]
    print("\n".join(model._describe()))
    for begin, end in itertools.pairwise([0, *(np.flatnonzero(np.diff(states)) + 1), len(states)]):
        state = states[begin]
        print(f"frames {begin:>3} to {end - 1:>3}: {names[state]} (as frame {model.anchor_indices_[state]})")
    shown = np.array([names[state] for state in states])
    right = shown == actions[labels - 1]
    print(f"frames whose state is named like their hand-made label: {right.mean():.2f}")

    try:
        from dask_dca.plotting.sequences import plot_states
    except ImportError:
        return
    ax = plot_states(model, X, names=names)
    ax.figure.savefig("motion_capture.png", dpi=120)
    print("picture: motion_capture.png")


if __name__ == "__main__":
    main()
