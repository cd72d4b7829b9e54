import sys

line = "The quick brown fox jumps over the lazy dog and says a lot of words here. "
sys.stdout.write("".join(f"{i} {line}\n" for i in range(2600)))
