"""`python -m isthmus` is the command isthmus."""

from isthmus.cli.app import main

if __name__ == "__main__":
    main()
