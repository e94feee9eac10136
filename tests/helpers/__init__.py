"""What tests share: fixtures, fakes, programs that tests run, and the calls that they make."""
