"""``python -m assets.recipe STEP``.

Each process that draws chats imports this module first, so it imports nothing by itself.
"""

if __name__ == "__main__":
    from assets.recipe.steps import main

    main(prog_name="python -m assets.recipe")
