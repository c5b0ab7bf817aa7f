"""Run benchmarks and write their results: ``python -m benchmarks [ID ...] [--quick] [--report]``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks import (
    ablation,
    bases,
    block_faults,
    chunkings,
    dask_neighbours,
    driver_share,
    earlier,
    few_blocks,
    harness,
    holes,
    holes_models,
    hyperspectral,
    killed_streams,
    library,
    linear_dynamics,
    many_workers,
    markov,
    markov_scale,
    membership,
    mixture_number,
    mixture_scale,
    mixtures,
    mutations,
    profiles,
    quality,
    rare,
    rare_models,
    report,
    scaling,
    scheduler,
    slow_stores,
    soak,
    solvers,
    speed,
    streaming,
    streams,
    subproblems,
    subspace_scale,
    subspaces,
    subspaces_measured,
    topics,
    topics_scale,
    users_choice,
    worker_memory,
)

HERE = Path(__file__).parent
BENCHMARKS: dict[str, type[harness.Benchmark]] = {
    cls.id: cls
    for cls in (
        ablation.Ablation,
        quality.NoiseCurve,
        quality.Regimes,
        quality.SmallRegimes,
        quality.Duplicates,
        quality.Oracle,
        hyperspectral.Samson,
        bases.FreeBases,
        bases.RayBases,
        bases.AutoBases,
        solvers.Solvers,
        hyperspectral.Mixtures,
        hyperspectral.Oracle,
        library.Library,
        library.LackingLibrary,
        mixtures.PaperGrid,
        mixtures.PaperLine,
        mixtures.HeavyTails,
        mixture_number.NumberOfComponents,
        mixtures.Unequal,
        mixtures.Small,
        mixtures.Images,
        mixtures.SamePartition,
        markov.Stocks,
        markov.MotionCapture,
        markov.PlantedChains,
        markov.BestBasin,
        linear_dynamics.LinearDynamics,
        linear_dynamics.MissingFrames,
        linear_dynamics.HiddenStates,
        subproblems.SubProblems,
        topics.Topics,
        topics.PlantedTopics,
        subspaces.ConeGrid,
        subspaces.ConeLine,
        subspaces.CommonCentre,
        subspaces.ConeAngles,
        subspaces_measured.Images,
        subspaces_measured.Motions,
        membership.Membership,
        holes.Holes,
        holes.Batches,
        rare.RareMaterials,
        rare.SpoiltRows,
        rare_models.RareClusters,
        rare_models.RareTopics,
        holes_models.HolesInModels,
        streams.TopicStreams,
        streams.LikelihoodStreams,
        speed.Streaming,
        speed.InMemory,
        speed.Tiny,
        scaling.Growth,
        scaling.Workers,
        slow_stores.SlowStores,
        many_workers.ManyWorkers,
        few_blocks.FewBlocks,
        driver_share.DriverShare,
        earlier.Earlier,
        dask_neighbours.DaskNeighbours,
        users_choice.UsersChoice,
        topics_scale.ManyDocuments,
        mixture_scale.MixtureScale,
        markov_scale.LongSequences,
        subspace_scale.SubspaceScale,
        scheduler.Scheduler,
        profiles.Profiles,
        worker_memory.WorkerMemory,
        soak.Soak,
        streaming.Streaming,
        streaming.StreamingHoles,
        chunkings.Chunkings,
        block_faults.BlockFaults,
        killed_streams.KilledStreams,
        mutations.Mutations,
    )
}
ALONE = {  # run only where they are named: `make soak`
    one.id
    for one in (
        soak.Soak,
        streaming.Streaming,
        streaming.StreamingHoles,
        chunkings.Chunkings,
        block_faults.BlockFaults,
        killed_streams.KilledStreams,
        mutations.Mutations,
    )
}


def select(names: list[str]) -> list[str]:
    """Ids that are named or start with a name and a dash (Q3: Q3-samson, Q3-usgs); all but ALONE if none is named."""
    if not names:
        return [name for name in BENCHMARKS if name not in ALONE]
    chosen = [key for key in BENCHMARKS if any(key == name or key.startswith(f"{name}-") for name in names)]
    unknown = [name for name in names if not any(key.split("-")[0] == name.split("-")[0] for key in chosen)]
    if unknown or not chosen:
        raise SystemExit(f"unknown benchmark {', '.join(unknown or names)}: one of {', '.join(BENCHMARKS)}")
    return chosen


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("ids", nargs="*", help=f"which ones (default: all): {', '.join(BENCHMARKS)}")
    parser.add_argument("--quick", action="store_true", help="small sizes; results go to results/tmp")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME=VALUE[,VALUE]",
        help="run these cases, keep others' results",
    )
    parser.add_argument("--report", action="store_true", help="run nothing, judge what is kept")
    options = parser.parse_args(arguments)
    results = HERE / "results" / "tmp" if options.quick else HERE / "results"
    target = results / "RESULTS.md" if options.quick else HERE / "RESULTS.md"
    parted = [(key, values) for key, _, values in (each.partition("=") for each in options.only)]
    only = {key: [values, *values.split(",")] for key, values in parted}  # a value may have commas itself
    for name in [] if options.report else select(options.ids):
        if not only.keys() <= set(BENCHMARKS[name].param_names):
            continue
        document = harness.run(BENCHMARKS[name](quick=options.quick), only, results)
        harness.save(document, results)
        for check in document["checks"]:
            print(f"{name}: {check['must']}: {check['value']}", file=sys.stdout)
    if options.report:
        _judge(results)
    report.write(results, target)


def _judge(results: Path) -> None:
    """Bring titles, tables and requirements of kept results to what the benchmarks say today."""
    for path in results.glob("[!.]*.json"):
        kept = json.loads(path.read_text())
        if kept["id"] in BENCHMARKS:
            harness.save(harness.judged(BENCHMARKS[kept["id"]](quick=kept["quick"]), kept), results)


if __name__ == "__main__":
    main()
