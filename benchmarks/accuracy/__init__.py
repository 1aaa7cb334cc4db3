"""`make bench-accuracy MNIST=DIR`: how soon a real model is good enough, over slow links, as workers die.

Four hosts of unequal speed behind ns-3's links of medium wan. One of them loses its worker by SIGKILL 15 s
after all have begun, and each 30 s from then; the same seed draws the same hosts for all racers of a round.
Time counts from when the last worker was about to make its first step, so that nobody's start counts, to
the end of the first epoch whose model is good enough. Who isn't there after the limit has the limit for its
time. Rivals' killed workers are started again at once, as by a supervisor.

Beside Peerloom's own choice stand the simpler explanations: its exact method, which has only its elasticity
and its shares by speed, and torchft's DiLoCo, which exchanges as seldom as ours. CELLS="mnist-10" runs some.
"""
