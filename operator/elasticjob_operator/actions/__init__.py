"""Carries out for one job what was decided: its access, the check of its template, its pods. Decides nothing."""
