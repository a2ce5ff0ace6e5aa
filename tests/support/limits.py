"""How long tests wait for what must come.

These limits prove nothing: they end a test that would hang. So they are far above what was measured
beside a load of 17 on two cores, where `paddock serve` took 5 s to refuse a broken file, and a
session at high 2.3 s to be created. A test that proves something by time compares ratios, or the
time of the processor.
"""

# In this process, or over a connection to it: an event, an answer, the end of a thread.
WAIT_SECONDS = 120
# For a program, a container or a browser to start, to answer and to end.
PROGRAM_SECONDS = 300
