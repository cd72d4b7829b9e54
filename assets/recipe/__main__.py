"""``python -m assets.recipe STEP``.

Every process that draws chats imports this module first, so it has no imports at the top level.
"""

if __name__ == "__main__":
    from assets.recipe.steps import main

    main(prog_name="python -m assets.recipe")
