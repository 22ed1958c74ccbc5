"""Where cases come from: one provider a file, and the door that finds the right one."""
