"""Where things are: services and artifacts; in memory only, told again after a restart."""
