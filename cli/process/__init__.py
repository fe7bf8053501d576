"""What every command does in its process: errors in one sentence, closed pipes, SIGTERM, the temporary folder."""
