"""Tables of what is recommended from the whole catalogue."""

from __future__ import annotations

from table_format import format_time, load_results, to_markdown

DATASETS = ("ml-1m", "yelp-dfm", "amazon-dfm", "gowalla")
NAMES = {  # in the results: in the tables
    "popularity": "popularity",
    "ALS": "ALS of implicit, tuned",
    "BPR": "BPR of implicit",
    "EASE": "EASE",
    "teacher": "the teacher of CCCF",
    "CCCF 8x16, real-valued": "**CCCF 8x16, real-valued queries**",
    "CCCF 8x16, coded": "**CCCF 8x16, coded queries**",
    "CCCF 8x4, coded": "CCCF 8x4, coded queries",
}
README = ("popularity", "ALS", "EASE", "CCCF 8x16, coded", "CCCF 8x16, real-valued")
NDCG = "NDCG@10"
RATED = "CCCF, learned, 128 bits, real-valued queries"  # in the results of bench_accuracy.py


def recommend() -> str:
    """Return NDCG@10 of the main methods."""
    found = load_results("recommend")
    datasets = [dataset for dataset in DATASETS if dataset in found]
    lines = []
    for name in README:
        cells = [found[dataset].get(f"{name}, {NDCG}") for dataset in datasets]
        lines.append([NAMES[name], *("" if value is None else f"{value:.3f}" for value in cells)])
    return to_markdown(["NDCG@10, all items", *datasets], lines)


def recommend_all() -> str:
    """Return all figures of all methods."""
    found = load_results("recommend")
    lines = []
    for dataset in DATASETS:
        for name, label in NAMES.items():
            figures = found.get(dataset, {})
            if f"{name}, {NDCG}" not in figures:
                continue
            cells = [f"{figures[f'{name}, {figure}']:.4f}" for figure in (NDCG, "NDCG@100", "recall@100")]
            cells.append(f"{figures[f'{name}, distinct items']:,.0f}")
            cells.append(f"{100 * figures[f'{name}, share of the most recommended']:.0f} %")
            seconds = figures.get(f"{name}, seconds")
            cells.append("" if seconds is None or name == "popularity" else format_time(seconds))
            lines.append([f"{dataset}: {label}", *cells])
    head = ["", NDCG, "NDCG@100", "recall@100", "items in all top-10", "users with the most frequent", "training, s"]
    return to_markdown(head, lines)


def recommend_rated() -> str:
    """Return NDCG@10 of rated items, of models that were trained for all items and for rated items."""
    found, key = load_results("recommend"), "CCCF 8x16, real-valued, rated NDCG@10"
    datasets = [dataset for dataset in DATASETS if key in found.get(dataset, {})]
    rated = [load_results(f"accuracy-{dataset}")[RATED]["rated"][-1] for dataset in datasets]
    lines = [
        ['`objective="catalogue"`, the default', *(f"{found[dataset][key]:.3f}" for dataset in datasets)],
        ['`objective="rated"`', *(f"{value:.3f}" for value in rated)],
    ]
    return to_markdown(["NDCG@10, rated items, CCCF 8x16, real-valued queries", *datasets], lines)


TABLES = (recommend, recommend_all, recommend_rated)
