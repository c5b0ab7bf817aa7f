"""What runs where: inputs as blocks of rows, passes over them, and the divide and conquer steps."""
