"""Parts of HTML reports that several commands write."""
