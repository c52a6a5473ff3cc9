"""Integer weights of coded queries."""

import numpy as np

from cccf_index.kernels.decorators import entry, kernel
from cccf_index.kernels.limits import DENSE_SHIFT
from cccf_index.kernels.memory import address_of, write


# O(G) for each query.
@kernel
def round_weights(weights, scale, most, most_scale, item_scale, has_dense, rounded, divisors, bias_scales):
    """Round the weights of queries times their scale; return the largest, and whether all of some query became 0.

    weights: float32 (nq, G) or, if `has_dense`, (nq, G + 1), with the weight of the dense component last: items'
    weights of it are 2^DENSE_SHIFT times finer, so all others and the biases are multiplied by that. scale: float, or
    0 to make the largest weight of each query `most`. item_scale: the scale of the items. Filled are rounded: int64,
    as the weights; divisors: float64 (nq,), what scores are divided by; and bias_scales: int64 (nq,), what biases are
    multiplied by, whole numbers up to `most_scale`; empty where items have no bias. They are written by address: of
    queries with float weights, which are not rounded, they are read-only.
    """
    largest, any_lost, shift = 0.0, False, DENSE_SHIFT if has_dense else 0
    n_binary = weights.shape[1] - 1 if has_dense else weights.shape[1]
    at_rounded, at_divisors, at_bias_scales = address_of(rounded), address_of(divisors), address_of(bias_scales)
    for q in range(weights.shape[0]):
        peak = np.float64(0)
        for k in range(weights.shape[1]):
            peak = max(peak, np.float64(weights[q, k]))
        used = scale if scale > 0 else most / peak if peak > 0 else 1.0
        if at_bias_scales != 0:
            used = scale if scale > 0 else np.floor(min(max(used, 1.0), most_scale))
            write(at_bias_scales, q, np.int64(used) << shift)
        write(at_divisors, q, used * item_scale * (1 << shift))
        top = np.rint(peak * used)
        for k in range(weights.shape[1]):
            weight = np.int64(np.rint(weights[q, k] * used)) if top < 2.0**62 else np.int64(0)
            write(at_rounded, q * weights.shape[1] + k, weight << shift if k < n_binary else weight)
        largest = max(largest, top)
        any_lost |= peak > 0 and top == 0
    return largest, any_lost


@entry
def round_queries(weights, scale, most, most_scale, item_scale, has_dense, rounded, divisors, bias_scales):
    """See `round_weights`."""
    return round_weights(weights, scale, most, most_scale, item_scale, has_dense, rounded, divisors, bias_scales)
