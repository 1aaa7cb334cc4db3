"""Who measures the way to whom, and when: two at a time, each with another one in every round."""

MOST_ROUNDS = 8  # a rank's own rate is known after as many partners


def partners(rank: int, ranks: int) -> list[int | None]:
    """Whom a rank meets in each round, so that all meet: the circle method. None: it has a rest."""
    places = ranks + ranks % 2
    found: list[int | None] = []
    for round_ in range(places - 1):
        if rank == places - 1:
            partner = round_ * places // 2 % (places - 1)  # whom the line below has meet itself
        else:
            partner = (round_ - rank) % (places - 1)
            partner = places - 1 if partner == rank else partner
        found.append(partner if partner < ranks else None)
    return found


def measured_partners(rank: int, ranks: int) -> list[int | None]:
    """Whom a rank measures its way to, round by round: the first `MOST_ROUNDS` that it meets."""
    return partners(rank, ranks)[:MOST_ROUNDS]
