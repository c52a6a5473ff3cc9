"""The module of ann-benchmarks, loaded and run as ann-benchmarks does.

ann-benchmarks is not on any package index. Its contract is restated here as of its commits a217730 (`BaseANN`), 17d83e6
(definitions) and of its runner and metrics of 2023 to 2025: what is copied into `algorithms/<name>` is imported as
`ann_benchmarks.algorithms.<name>.module`; a definition is every combination of `base_args` and `args`, run with every
combination of `query_args`; the runner recomputes the distances of the ids, and recall counts those within
the distance of the last true neighbour plus 0.001.
"""

import importlib
import itertools
import pathlib
import shutil
import sys

import numpy as np
import pytest
import yaml
from adapter_helpers import vectors

FOLDER = pathlib.Path(__file__).parents[1] / "adapters" / "ann_benchmarks"
BASE = """
class BaseANN:
    def done(self): pass
    def get_memory_usage(self): return None
    def fit(self, X): pass
    def query(self, q, n): return []
    def batch_query(self, X, n): raise NotImplementedError
    def get_batch_results(self): return self.res
    def get_additional(self): return {}
    def __str__(self): return self.name
"""
DISTANCES = {
    "angular": lambda a, b: 1 - a @ b / (np.linalg.norm(a) * np.linalg.norm(b)),
    "dot": lambda a, b: -(a @ b),
}
COUNT = 10


@pytest.fixture(scope="module")
def algorithms(tmp_path_factory):
    """A tree with the folders of ann-benchmarks, ours copied into it."""
    root = tmp_path_factory.mktemp("ann")
    for package, text in (("", ""), ("algorithms", ""), ("algorithms/base", "")):
        folder = root / "ann_benchmarks" / package
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").write_text(text)
    (root / "ann_benchmarks" / "algorithms" / "base" / "module.py").write_text(BASE)
    shutil.copytree(FOLDER, root / "ann_benchmarks" / "algorithms" / "cccf")
    sys.path.insert(0, str(root))
    yield root
    sys.path.remove(str(root))


def definitions(metric):
    """Every algorithm of the config, as ann-benchmarks would make it, and its query arguments."""
    config = yaml.safe_load((FOLDER / "config.yml").read_text())["float"][metric]
    for algorithm in config:
        assert {"docker_tag", "module", "constructor", "name", "base_args", "run_groups"} <= set(algorithm)
        for group in algorithm["run_groups"].values():
            for args in itertools.product(*group["args"]):
                base = [metric if arg == "@metric" else arg for arg in algorithm["base_args"]]
                yield algorithm, [*base, *args], list(itertools.product(*group["query_args"]))


def recall(metric, items, queries, answers):
    distance = DISTANCES[metric]
    shares = []
    for query, ids in zip(queries, answers, strict=True):
        assert len(ids) == len(set(ids)) <= COUNT
        last = np.sort([distance(query, item) for item in items])[COUNT - 1]
        shares.append(sum(distance(query, items[int(i)]) <= last + 1e-3 for i in ids) / COUNT)
    return np.mean(shares)


@pytest.mark.parametrize("metric", ["dot", "angular"])
def test_a_small_set_is_run_by_every_definition(algorithms, metric):
    users, items = vectors(n_users=40, n_items=600, p=24)
    made = list(definitions(metric))
    assert len(made) == 3
    for algorithm, args, query_groups in made:
        module = importlib.import_module(f"{algorithm['module']}.module")
        algo = getattr(module, algorithm["constructor"])(*args)
        before = algo.get_memory_usage()
        algo.fit(items)
        assert algo.get_memory_usage() > before
        found = {}
        for group in query_groups:
            algo.set_query_arguments(*group)
            answers = [algo.query(user, COUNT) for user in users]
            algo.batch_query(users, COUNT)
            for one, many in zip(answers, algo.get_batch_results(), strict=True):
                assert np.array_equal(one, many)
            found[str(algo)] = recall(metric, items, users, answers)
        assert len(found) == len(query_groups)  # each has a name of its own
        assert max(found.values()) > 0.99
        assert min(found.values()) > 0.25
        algo.get_additional()
        algo.done()


def test_other_metrics_are_refused(algorithms):
    module = importlib.import_module("ann_benchmarks.algorithms.cccf.module")
    with pytest.raises(NotImplementedError, match="euclidean"):
        module.CCCF("euclidean", 28)


def test_the_image_builds_on_that_of_ann_benchmarks():
    lines = (FOLDER / "Dockerfile").read_text().splitlines()
    assert lines[0] == "FROM ann-benchmarks"
    assert any("pip install" in line for line in lines)
