"""The motion-capture example runs as it is, in an empty folder, and names the motions."""

import subprocess
import sys

from tests.conftest import ROOT


def test_motions_are_named_by_their_typical_frames(tmp_path):
    script = ROOT / "examples" / "motion_capture.py"
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    share = float(done.stdout.partition("hand-made label: ")[2].split()[0])
    assert share > 0.9
    for motion in ("JumpJack", "Twist", "KneeRaise", "UpDown", "ToeTouchTwoHands", "ArmCircle"):
        assert motion in done.stdout
    assert (tmp_path / "motion_capture.png").exists()
