"""What the exit code of a command says."""

EXIT_OK = 0
EXIT_FINDINGS = 1
EXIT_COULD_NOT_RUN = 2
EXIT_OUR_BUG = 3
EXIT_INTERRUPTED = 130
EXIT_READER_GONE = 141  # what a shell shows for a program that `head` cut off
EXIT_TERMINATED = 143  # and for one that was told to end
