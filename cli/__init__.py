"""Room cli."""
def main() -> int:
    return 0
