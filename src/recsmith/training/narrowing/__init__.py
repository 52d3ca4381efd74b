"""Dense layers that multiply fewer units for a time, and end at their full size: `model.narrow` of a run.

Du et al. 2021 (arXiv 2105.01064): train some units of each layer, let the others return, and begin anew with another
choice, so that most steps are cheap and no capacity is lost. settings.py says when; units.py, which units go together;
layers.py parks them and lets them return; cost.py says what it saves.
"""
