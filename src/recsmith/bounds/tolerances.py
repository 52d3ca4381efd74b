"""How far floating-point sums may be off before a bound is no longer one: what every bound gives away for it."""

ROUNDING = 1e-9  # relative, of seconds; sums of some 10,000 terms in double precision are exact to about 1e-12
BYTES_ROUNDING = 1e-13  # relative, of bytes times their price, which may exceed the seconds beside it by many decades
