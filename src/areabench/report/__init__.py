"""One page of HTML that shows a run, several runs or sweeps: read here, drawn by the browser, without any network."""
