"""The stages of a job, one public function each: inputs and ports in, one artefact out; safe to run twice."""
