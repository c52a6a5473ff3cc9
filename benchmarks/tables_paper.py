"""Tables of docs/paper.md: what was measured of each claim of the paper."""

from __future__ import annotations

from collections.abc import Sequence

from table_format import format_ratio, format_time, load_results, to_markdown

DATASETS = ("ml-1m", "yelp-dfm", "amazon-dfm")
PAPER = {"ml-1m": (6.97, 1.49), "yelp-dfm": (7.86, 1.43), "amazon-dfm": (7.12, 1.48)}  # table 2: MF and DCF / CCCF


MODELS = {  # in the results, with BITS: in the tables
    "mean and popularity": "BASELINE",
    "MF, BITS bits": "MF, as many factors",
    "MF, all pairs, BITS bits": "`MF(unobserved=0.1)`, as many factors",
    "BCCF, BITS bits": "BCCF",
    "DCF, BITS bits": "DCF",
    "DCMF, BITS bits": "DCMF, genres as features",
    "CCCF, kernel, BITS bits": "CCCF, kernel weights (the paper's)",
    "CCCF, learned, BITS bits, coded queries": "**CCCF, learned weights**",
    "CCCF, learned, BITS bits, real-valued queries": "**CCCF, learned weights, real-valued queries**",
}


def rank_models(columns: Sequence[tuple[str, int]], protocol: str, digits: int, baseline: str) -> list[list[str]]:
    """Return rows of NDCG@10, a column for each data set and number of bits."""
    found = {dataset: load_results(f"accuracy-{dataset}") for dataset in DATASETS}
    lines = []
    for name, label in MODELS.items():
        rows = (found[dataset].get(name.replace("BITS", str(bits))) for dataset, bits in columns)
        values = ("" if row is None else f"{row[protocol][-1]:.{digits}f}" for row in rows)
        lines.append([label.replace("BASELINE", baseline), *values])
    return lines


def ranking() -> str:
    """Return NDCG@10 of each user's held-out items."""
    columns = [("ml-1m", bits) for bits in (32, 64, 128)]
    columns += [(dataset, bits) for dataset in DATASETS[1:] for bits in (32, 128)]
    head = ["NDCG@10, held-out items", *(f"{dataset}, {bits} bits" for dataset, bits in columns)]
    return to_markdown(head, rank_models(columns, "rated", 3, "mean rating of the item"))


def ranking_all() -> str:
    """Return NDCG@10 over the whole catalogue."""
    columns = [(dataset, 128) for dataset in DATASETS]
    head = ["NDCG@10, all items, 128 bits", *DATASETS]
    return to_markdown(head, rank_models(columns, "catalogue", 4, "popularity"))


def costs() -> str:
    """Return the seconds for all users, and the ratios of the paper."""
    found, lines = load_results("costs"), []
    for dataset, (paper_mf, paper_dcf) in PAPER.items():
        row = found[dataset]
        lines.append(
            [
                f"{dataset}, {row['users']:,} users, {row['items']:,} items",
                *(format_time(row[name]) for name in ("MF, IndexFlatIP", "DCF, IndexBinaryFlat", "CCCF learned, IWS")),
                format_ratio(row["MF / CCCF learned"]),
                f"{paper_mf:.1f}x",
                format_ratio(row["DCF / CCCF learned"]),
                f"{paper_dcf:.1f}x",
            ]
        )
    head = ["s, one thread", "MF", "DCF", "CCCF", "MF / CCCF", "MF / CCCF, paper", "DCF / CCCF", "DCF / CCCF, paper"]
    return to_markdown(head, lines)


def exact() -> str:
    """Return integer against float weights."""
    found, lines = load_results("costs"), []
    for dataset in DATASETS:
        for label, key in (("learned", "CCCF learned"), ("kernel, h = 0.5", "h = 0.5"), ("kernel, h = 1.2", "h = 1.2")):
            floats, integers = (found[dataset][f"{key}, {kind}"] for kind in ("EXACT", "IWS"))
            lines.append([f"{dataset}, {label}", f"{floats:.3f}", f"{integers:.3f}", f"{floats / integers:.2f}x"])
    return to_markdown(["s, one thread", "EXACT", "IWS", "EXACT / IWS"], lines)


def scales() -> str:
    """Return NDCG@10 with weights that are rounded at e."""
    found, lines = load_results("weights"), []
    sizes = (1, 10, 50, 100, 500, 1000)
    for dataset in DATASETS:
        for label, part, prefix in (
            ("kernel, h = 0.8", "kernel", "h = 0.8, "),
            ("kernel, h = 1.2", "kernel", "h = 1.2, "),
            ("learned", "learned", ""),
        ):
            row = found[f"{dataset}, {part}"]
            plain = row["float"] if part == "learned" else row[prefix.removesuffix(", ")]
            values = [row[f"{prefix}e = {size}"]["mean"] for size in sizes]
            lines.append([f"{dataset}, {label}", *(f"{value:.4f}" for value in values), f"{plain['mean']:.4f}"])
    return to_markdown(["NDCG@10", *(f"e = {size}" for size in sizes), "float"], lines)


def bandwidths() -> str:
    """Return NDCG@10, active components and seconds by bandwidth."""
    found, seconds, lines = load_results("weights"), load_results("costs"), []
    widths = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2)
    for dataset in DATASETS:
        row = found[f"{dataset}, kernel"]
        lines.append([f"{dataset}, NDCG@10", *(f"{row[f'h = {h}']['mean']:.4f}" for h in widths)])
        active = [row[f"h = {h}, active of an item"]["mean"] for h in widths]
        lines.append([f"{dataset}, active components of an item", *(f"{value:.1f}" for value in active)])
        lines.append(
            [
                f"{dataset}, seconds, all users, one thread",
                *(format_time(seconds[dataset][f"h = {h}, IWS"]) for h in widths),
            ]
        )
    return to_markdown(["", *(f"h = {h}" for h in widths)], lines)


def components() -> str:
    """Return NDCG@10 with fixed bits in all, by the number of components."""
    found, lines = load_results("components"), []
    for dataset in DATASETS:
        for part in ("kernel", "learned"):
            row = found[f"{dataset}, {part}"]
            for total in (32, 128):
                values = [f"{row[f'{G}x{total // G}']['mean']:.4f}" for G in (1, 2, 4, 8, 16, 32)]
                lines.append([f"{dataset}, {part}, {total} bits, {row['splits']} splits", *values])
    return to_markdown(["NDCG@10", *(f"G = {G}" for G in (1, 2, 4, 8, 16, 32))], lines)


def convergence() -> str:
    """Return NDCG@10 and the objective after some iterations."""
    found, lines = load_results("convergence"), []
    for dataset in DATASETS:
        for part in ("initialised", "random start"):
            row = found[f"{dataset}, {part}"]
            values = [f"{row[f'NDCG@10 after {n}']['mean']:.4f}" for n in (0, 1, 2, 4, 10)]
            objective = row["objective"]["mean"]
            lines.append([f"{dataset}, {part}", *values, f"{objective[1]:.4f}", f"{objective[-1]:.4f}"])
    head = ["NDCG@10 after iterations", "0", "1", "2", "4", "10", "objective after 1", "objective after 10"]
    return to_markdown(head, lines)


def genres() -> str:
    """Return how often the nearest movies have the same genre."""
    found = load_results("map")
    keys = ("same genre among nearest, by codes", "same genre among nearest, in the drawing", "by chance")
    lines = [[name, *(f"{row[key]:.3f}" for key in keys)] for name, row in found.items() if name != "movies"]
    head = ["share with the same genre, of the ten nearest", "by codes", "in the drawing", "by chance"]
    return to_markdown(head, lines)


TABLES = (ranking, ranking_all, costs, components, exact, scales, bandwidths, convergence, genres)
