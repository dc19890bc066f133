"""Records the outside of the busy night anew: .venv/bin/python tests/outside/record.py. Then read `git diff`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from recording import Pages, record


def main():
    pages = Pages()
    try:
        changed = record(pages.ask_all())
    finally:
        pages.close()
    for name in changed:
        print(name)
    print(f"{len(changed)} pages of {len(pages.found)} changed")


if __name__ == "__main__":
    main()
