"""A closed system is attacked from all sides, and a table says what each attack gained (`make attack`).

The attackers are a stranger without a certificate, a node and a user with certificates of their own, and the
code of a job on a node that lets code in. An attack gained nothing only if it was refused for the reason that
belongs to it (`outcomes`); one that failed otherwise proves nothing, and fails the run. Where it can, the
same function attacks a plain system too, with neither door nor sandbox, where it must gain: it is able to.
"""
