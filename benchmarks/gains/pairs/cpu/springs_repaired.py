"""built-in-over-tensor: the tensor's own sum."""


def run(state, places, speeds):
    springs, masses = state
    pulls = springs.sum(dim=1, keepdim=True)
    for _ in range(6):
        forces = springs @ places - pulls * places
        speeds = speeds + 0.02 * forces / masses[:, None]
        places = places + 0.02 * speeds
    moving = (0.5 * masses * speeds.square().sum(dim=1)).sum()
    return places, speeds, moving
