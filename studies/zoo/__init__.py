"""The shipped models side by side: what they prove, and what they cost."""
