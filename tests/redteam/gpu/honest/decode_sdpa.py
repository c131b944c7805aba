"""torch's attention over the same cache, with the mask as an argument."""

import torch
import torch.nn.functional as F


def run(state, q, k, v, place):
    state["k"].index_copy_(2, place, k)
    state["v"].index_copy_(2, place, v)
    seen = torch.arange(state["k"].shape[2], device=q.device) <= place
    return F.scaled_dot_product_attention(q, state["k"], state["v"], attn_mask=seen[None, None, None])
