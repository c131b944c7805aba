"""cat-in-loop: written into a tensor that is as long as it will get."""

HOURS, SEEN = 48, 24


def run(model, used):
    usual, spread = used.mean(dim=1, keepdim=True), used.std(dim=1, keepdim=True)
    known = used.shape[1]
    series = used.new_empty(used.shape[0], known + HOURS, used.shape[2])
    series[:, :known] = (used - usual) / (spread + 1e-3)
    for hour in range(known, known + HOURS):
        series[:, hour] = series[:, hour - 1] + model(series[:, hour - SEEN : hour])
    return series[:, -HOURS:] * (spread + 1e-3) + usual
