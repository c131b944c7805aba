"""scalar-writes: a tensor of each sentence, padded together."""

import torch
from torch.nn.utils.rnn import pad_sequence


def run(model, sentences):
    batch = pad_sequence([torch.tensor(sentence) for sentence in sentences], batch_first=True)
    seen = torch.relu(model["reader"](model["words"](batch).transpose(1, 2)))
    kept = (batch != 0).unsqueeze(1)
    return batch, model["head"]((seen * kept).sum(dim=2) / kept.sum(dim=2))
