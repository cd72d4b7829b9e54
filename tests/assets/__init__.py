"""Tests of the recipe and of the shipped pair."""
