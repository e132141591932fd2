"""`python -m puffer_vector ID`."""

import sys

from puffer_vector.command import bench

if __name__ == "__main__":
    sys.exit(bench(program="python -m puffer_vector"))
