"""Forms of the layers that suit XLA and TPUs: equal outputs and gradients, less memory and less traffic.

The layers outside this folder read like the paper's equations; each calls one function of this folder where XLA or a
training step benefits.
"""
