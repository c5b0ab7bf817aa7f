"""The scripts in examples/ run as they are, in an empty folder."""

import runpy
import subprocess
import sys

import pytest

from tests.conftest import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
AS_USERS_DO = "topics_of_articles"  # in a process of its own; the others here, which has imported what they need


@pytest.fixture
def output_of(tmp_path, monkeypatch, capsys):
    def output(script):
        if script.stem == AS_USERS_DO:
            done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=240)
            assert done.returncode == 0, done.stderr
            return done.stdout
        monkeypatch.chdir(tmp_path)
        runpy.run_path(str(script), run_name="__main__")
        return capsys.readouterr().out

    return output


@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_example(script, output_of, tmp_path):
    assert script.read_text().endswith('if __name__ == "__main__":\n    main()\n')  # worker processes may import it
    printed = output_of(script)
    assert printed
    if script.stem == "anchors_of_a_zarr_array":
        named = {line.partition(": ")[2] for line in printed.splitlines() if line.startswith("day ")}
        assert named == {"morning", "noon", "evening", "night"}
    if script.stem == "minerals_of_a_library":
        mixed, named, constant, lacking = printed.splitlines()
        assert mixed.partition(": ")[2].strip() == named.partition(": ")[2].strip()
        assert "mixed in: True" in constant
        assert "noticed: True" in lacking
    if script.stem in ("anchors_of_a_zarr_array", "topics_of_articles"):
        assert "saved and loaded: True" in printed
    if script.stem == "motion_capture":
        assert float(printed.partition("hand-made label: ")[2].split()[0]) > 0.9
        for motion in ("JumpJack", "Twist", "KneeRaise", "UpDown", "ToeTouchTwoHands", "ArmCircle"):
            assert motion in printed
        assert (tmp_path / "motion_capture.png").exists()
