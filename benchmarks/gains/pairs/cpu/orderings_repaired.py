"""sort-for-few: the best ones alone."""


def run(queries, documents):
    scores = queries @ documents.T
    best = scores.topk(20, dim=1).indices
    return scores.gather(1, best)
