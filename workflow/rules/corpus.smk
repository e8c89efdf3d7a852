"""From downloaded dumps and text files to cleaned documents and their sentences, part by part."""
