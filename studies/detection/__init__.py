"""What alerts add to the shipped models: this answer or an alert, beside this answer."""
