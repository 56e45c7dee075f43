"""Why was a canary rolled back? Its evidence, and four questions that are answered before anybody trains again."""
