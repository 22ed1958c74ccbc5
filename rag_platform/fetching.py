"""Downloads under limits: the one way in which anything is fetched from the network."""
